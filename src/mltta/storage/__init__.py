"""Files: written atomically and read without executing code; and the Hugging Face Hub."""
