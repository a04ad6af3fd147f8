"""What is stored, byte for byte: subjects and streams, payloads and the values in them."""
