"""The manifests of bundles, and the records in them."""
