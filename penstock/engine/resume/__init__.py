"""What happens at a start: what is kept, built again, finished or refused."""
