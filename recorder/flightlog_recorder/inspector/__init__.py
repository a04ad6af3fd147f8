"""The inspector: sessions in a browser, from the recorder, for one person on this machine."""
