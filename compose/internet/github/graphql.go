package github

func (c *call) graphql() (int, any, error) { return 0, nil, notFound() }
