"""Peers on other machines: installed, started, watched and removed over ssh."""
