"""What a host program relies on when it runs the server as its child: a ready line, a token, and a common end."""
