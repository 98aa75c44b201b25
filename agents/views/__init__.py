"""Pages of the people who work here, and of what they carried out."""
