"""What a subscriber hands its events to: a program, or a URL. Each settles its deliveries."""
