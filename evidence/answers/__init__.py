"""Whether the answers of capacity, advise and doctor hold on seeds that they have not seen."""
