import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.image.publisher.MetadataPublisher;
import org.apache.kafka.metadata.util.SnapshotFileReader;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.server.fault.LoggingFaultHandler;
import org.apache.kafka.shell.command.Commands;
import org.apache.kafka.shell.state.MetadataShellPublisher;
import org.apache.kafka.shell.state.MetadataShellState;

/**
 * Kafka's metadata shell, of its own parts, obeying commands when the snapshot is loaded.
 *
 * <p>Its main class obeys when the loader has the snapshot, which may be before the shell has it: on a busy
 * machine it answers out of an empty image, again and again. In: the snapshot, and each command as one word with
 * spaces in it. Out: what each printed, ended by a zero byte.
 */
public final class Shell {
  private static final long PATIENCE_S = 120;

  private static final class Loaded implements MetadataPublisher {
    final CountDownLatch latch = new CountDownLatch(1);

    @Override
    public String name() {
      return "Loaded";
    }

    @Override
    public void onMetadataUpdate(MetadataDelta delta, MetadataImage image, LoaderManifest manifest) {
      if (image.highestOffsetAndEpoch().offset() > 0) {
        latch.countDown();
      }
    }
  }

  public static void main(String[] words) throws Exception {
    MetadataShellState state = new MetadataShellState();
    Loaded loaded = new Loaded();
    SnapshotFileReader[] reader = new SnapshotFileReader[1];
    MetadataLoader loader =
        new MetadataLoader.Builder()
            .setFaultHandler(new LoggingFaultHandler("shell", () -> {}))
            .setNodeId(-1)
            .setHighWaterMarkAccessor(() -> reader[0].highWaterMark())
            .setSupportedConfigChecker(new DefaultSupportedConfigChecker())
            .build();
    reader[0] = new SnapshotFileReader(words[0], loader);
    reader[0].startup();
    // In this order: when `loaded` is told, the shell was.
    loader.installPublishers(List.of(new MetadataShellPublisher(state), loaded)).get();
    if (!loaded.latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
      throw new IllegalStateException("not loaded within " + PATIENCE_S + " s");
    }
    for (int i = 1; i < words.length; i++) {
      StringWriter told = new StringWriter();
      new Commands(false)
          .parseCommand(new ArrayList<>(List.of(words[i].split(" "))))
          .run(Optional.empty(), new PrintWriter(told, true), state);
      System.out.print(told + "\0");
    }
    System.out.flush();
    loader.close();
    reader[0].close();
    System.exit(0);
  }
}
