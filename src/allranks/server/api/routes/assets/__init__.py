"""Routes for assets: data, environments, models, components and states.

May import what `routes` may."""
