package placement

// Fault is a reason why a key cannot stay placed. Placement, or a gateway that reads the key's
// slot, finds the fault. A gateway then asks the controller to remove the key from the switches.
type Fault string

const (
	NoFault Fault = ""
	// a gateway could not put the value into the slot, because the value is too large
	ValueTooLarge Fault = "value-too-large"
	// Bypassed means that etcd has a newer value than the slot, because a writer bypasses the
	// gateways.
	Bypassed        Fault = "bypassed"
	SlotLost        Fault = "slot-lost"        // the slot is gone, or belongs to another placement
	SlotUnreachable Fault = "slot-unreachable" // a gateway cannot write the key, because its slot does not answer
	Forged          Fault = "forged"           // the slot has a cell that no gateway has written
)

// ParseFault parses the name that a gateway uses for a fault. Gateways of an earlier version use
// "mute" for SlotUnreachable.
func ParseFault(text string) Fault {
	if text == "mute" {
		return SlotUnreachable
	}
	return Fault(text)
}
