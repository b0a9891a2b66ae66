"""Tests whether the answers of capacity, advise and doctor hold on seeds they have not used."""
