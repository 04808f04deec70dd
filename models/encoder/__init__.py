"""What encoders share: texts whose tokens see each other in both directions, as vectors."""
