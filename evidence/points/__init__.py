"""What measured points say of step times: constants that ship with kvsim, fitted on one half."""
