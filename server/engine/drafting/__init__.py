"""Draft tokens, which a step verifies: from the prompt, or with a drafter."""
