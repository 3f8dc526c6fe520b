"""What runs may claim about privacy, and the accounting behind it."""
