package agent

// All returns the adapters, the default one first.
func All() []Adapter {
	return []Adapter{Pi{}, AgenticPi{}, Command{}}
}

// Names are the values that config.agent may have, the default one first.
func Names() []string {
	var names []string
	for _, a := range All() {
		names = append(names, a.Name())
	}
	return names
}

// Lookup finds an adapter by the value of config.agent; "" means the default.
func Lookup(name string) (Adapter, bool) {
	for _, a := range All() {
		if name == "" || a.Name() == name {
			return a, true
		}
	}
	return nil, false
}
