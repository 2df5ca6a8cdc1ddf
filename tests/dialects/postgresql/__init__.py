"""What PostgreSQL alone does."""
