"""The routes of LM Studio's REST API that its clients choose models with: /api/v0/models."""
