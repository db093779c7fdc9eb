"""What operators ask and change, by Kafka's public APIs: all of it works at Apache Kafka too. WORLD."""
