"""Pictures in: decoded safely, cut into views, the same ones for the same picture."""
