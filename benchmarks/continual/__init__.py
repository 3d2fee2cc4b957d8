"""Learning that continues: classes, rows, domains and concepts that come one after another."""
