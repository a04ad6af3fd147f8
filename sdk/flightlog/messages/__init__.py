"""The context as a provider's messages: its entries, how requests edit it, how it is written."""
