"""Routes for stored responses and conversations."""
