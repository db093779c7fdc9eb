"""What a node holds of requests and answers at once: no client has more of it than its share."""
