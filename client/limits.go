package client

// Limits are what the server at hand takes, as its operator has set them. Zero is
// "not known": no server has been reached yet, or it is an older one.
type Limits struct {
	NodeBytes  int // data of one znode
	PathBytes  int // a path
	FrameBytes int // one message, so also one transaction
	OpsPerTxn  int // operations of one transaction
}

// Limits returns the limits of the server that the client is connected to. They
// may differ on another one, and after a restart.
func (c *Client) Limits() Limits {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	return Limits{
		NodeBytes: int(s.limits.GetNodeBytes()), PathBytes: int(s.limits.GetPathBytes()),
		FrameBytes: int(s.limits.GetFrameBytes()), OpsPerTxn: int(s.limits.GetOpsPerTransaction()),
	}
}
