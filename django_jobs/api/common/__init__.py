"""What the endpoints share: authentication, checks of requests, schemas, errors."""
