"""Pages of the board: list, board, new issue, one issue."""
