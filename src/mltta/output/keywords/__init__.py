"""Labels as keywords of photos: XMP in a sidecar file, or XMP and IPTC in a JPEG; pixels do not change."""
