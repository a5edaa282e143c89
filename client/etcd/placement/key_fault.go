package placement

// Fault is why a key cannot stay placed, found by looking at its slot: by placement, or by a
// gateway that asks for the key to be taken out of the network.
type Fault string

// The faults.
const (
	NoFault       Fault = ""
	ValueTooLarge Fault = "value-too-large" // a gateway could not put the value into the slot
	// etcd has a newer value than the slot: a writer bypasses the gateways
	Bypassed        Fault = "bypassed"
	SlotLost        Fault = "slot-lost"        // the slot is gone, or belongs to another placement
	SlotUnreachable Fault = "slot-unreachable" // a gateway cannot write the key, because its slot does not answer
	Forged          Fault = "forged"           // the slot has a cell that no gateway has written
)

// ParseFault is a fault as a gateway names it. Gateways of an earlier version say mute for
// SlotUnreachable.
func ParseFault(text string) Fault {
	if text == "mute" {
		return SlotUnreachable
	}
	return Fault(text)
}
