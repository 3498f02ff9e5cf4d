"""What commands print: findings, tables, progress."""
