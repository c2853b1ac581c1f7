"""Labels as keywords of the photos: XMP in a sidecar, or XMP and IPTC inside a JPEG; pixels stay as they are."""
