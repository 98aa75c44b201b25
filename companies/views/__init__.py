"""Pages of the ground floor. `door.py` is how every page of the product is entered."""
