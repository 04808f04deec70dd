"""Images in requests: from the text of a request to the squares that a model's tower reads."""
