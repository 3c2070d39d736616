"""The contract with a host program that runs the server as its child: ready line, token file, and a common end."""
