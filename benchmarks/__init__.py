"""Speed against other libraries, as ratios from one run (`make bench`)."""
