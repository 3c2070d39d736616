"""The small models that come with kakeya-bridge. README.md beside this file is their card."""
