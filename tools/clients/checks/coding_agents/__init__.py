"""Programs that read and edit files."""
