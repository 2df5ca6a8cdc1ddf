"""The search language: queries, what they are matched against, and snippets. No database here."""
