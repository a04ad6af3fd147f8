"""What is too large for an event: chunks beside the log, and their way out of payloads and back."""
