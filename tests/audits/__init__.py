"""Lighthouse over the main pages: `make lighthouse`."""
