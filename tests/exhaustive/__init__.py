"""Every order in which workers, deaths, lost responses and ended leases can meet, for one call and three workers."""
