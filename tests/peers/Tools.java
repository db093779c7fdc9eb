import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes that it is told, one after the other, in one JVM: most of what a tool costs is its start.
 *
 * <p>In: how many words, then each with its length before it; the first is the class, and the last one what the
 * tool finds on its stdin. Out: the exit code, then what was printed to stdout and to stderr, each with its length
 * before it. Numbers are int32, big-endian.
 */
public final class Tools {
  /** Ends a tool where it would have ended the JVM. */
  private static final class Ended extends RuntimeException {}

  /** Goes where it is told at the time; tools keep the stream that they found when they were loaded. */
  private static final class Switch extends OutputStream {
    volatile OutputStream to = OutputStream.nullOutputStream();

    @Override
    public void write(int one) throws IOException {
      to.write(one);
    }

    @Override
    public void write(byte[] data, int from, int count) throws IOException {
      to.write(data, from, count);
    }
  }

  private static final Switch OUT = new Switch();
  private static final Switch ERR = new Switch();
  private static final List<Runnable> HOOKS = new ArrayList<>();
  private static Integer code;

  public static void main(String[] none) throws Exception {
    DataInputStream asked = new DataInputStream(System.in);
    DataOutputStream told = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
    System.setOut(new PrintStream(OUT, true));
    System.setErr(new PrintStream(ERR, true));
    Exit.setExitProcedure((status, why) -> end(status));
    Exit.setHaltProcedure((status, why) -> end(status));
    Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
    while (true) {
      int count = asked.readInt(); // EOFException ends the process
      String[] words = new String[count];
      for (int i = 0; i < count; i++) {
        words[i] = new String(asked.readNBytes(asked.readInt()), StandardCharsets.UTF_8);
      }
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      ByteArrayOutputStream err = new ByteArrayOutputStream();
      OUT.to = out;
      ERR.to = err;
      code = null;
      System.setIn(new ByteArrayInputStream(words[count - 1].getBytes(StandardCharsets.UTF_8)));
      run(words);
      HOOKS.forEach(Runnable::run); // a producer sends what it holds back when its JVM ends
      HOOKS.clear();
      settle(code == null ? 0 : code);
      told.writeInt(code);
      for (byte[] printed : new byte[][] {out.toByteArray(), err.toByteArray()}) {
        told.writeInt(printed.length);
        told.write(printed);
      }
      told.flush();
    }
  }

  private static void run(String[] words) throws Exception {
    String[] rest = Arrays.copyOfRange(words, 1, words.length - 1);
    try {
      Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    } catch (InvocationTargetException problem) {
      if (code == null) {
        problem.getCause().printStackTrace();
        settle(1);
      }
    }
  }

  /** What a tool does after its exit is no part of it: the first code stands, and nothing more is printed. */
  private static void settle(int status) {
    if (code == null) {
      code = status;
    }
    System.out.flush();
    System.err.flush();
    OUT.to = OutputStream.nullOutputStream();
    ERR.to = OutputStream.nullOutputStream();
  }

  private static void end(int status) {
    settle(status);
    throw new Ended();
  }
}
