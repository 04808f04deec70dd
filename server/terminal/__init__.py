"""`hearth generate` and `hearth chat`: a service in the same process, without HTTP."""
