"""What the endpoints share: who calls, what a request must pass, schemas, errors."""
