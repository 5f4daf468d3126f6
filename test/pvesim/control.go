package pvesim

func (s *Server) startControl() error { return nil }
