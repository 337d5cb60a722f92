package agent

// All returns the adapters, the default one first.
func All() []Adapter {
	return []Adapter{{piName, Pi{}}, {agenticPiName, AgenticPi{}}, {CommandName, Command{}}}
}
