"""A load that people publish, made by `manage.py load`: users who give agents tasks.

Reading order: `scenario` (what one user does and when), `driver` (what a product must offer),
`ours` (this product behind that), `provider` (the model's end of the line), `machine` (what the
processes use), `report` (the table), `http` (a client that is cheap enough to share the machine).
"""
