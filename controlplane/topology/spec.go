package topology

// Spec is a topology in the form of the file, with the file's field names, for programs that make
// topologies (New). example.yaml explains the fields and their defaults.
type Spec struct {
	Program    ProgramSpec    `yaml:"program"`
	TLS        TLSSpec        `yaml:"p4runtimeTLS"`
	Controller ControllerSpec `yaml:"controller"`
	Sessions   SessionsSpec   `yaml:"sessions"`
	Switches   []SwitchSpec   `yaml:"switches"`
	Links      [][]string     `yaml:"links"` // pairs of SWITCH:PORT
	Hosts      []HostSpec     `yaml:"hosts"`
	HostRate   int            `yaml:"hostRate"`
	Realms     []RealmSpec    `yaml:"realms"`
	Chains     []ChainSpec    `yaml:"chains"`
	// Loopback allows addresses of 127.0.0.0/8, for networks inside one process whose only host is
	// this machine (devnet.Loopback). A file cannot set it.
	Loopback bool `yaml:"-"`
}

// ProgramSpec is a Spec's program.
type ProgramSpec struct {
	Profile string `yaml:"profile"`
	JSON    string `yaml:"json"`
	P4Info  string `yaml:"p4info"`
}

// TLSSpec configures the connections to a Spec's switches.
type TLSSpec struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// ControllerSpec is the controller's configuration in a Spec.
type ControllerSpec struct {
	Address string `yaml:"address"`
}

// SessionsSpec says which sessions the controller and clients may use.
type SessionsSpec struct {
	Controller *int `yaml:"controller"`
	Last       int  `yaml:"last"`
	TTLSeconds *int `yaml:"ttlSeconds"`
}

// SwitchSpec is one switch.
type SwitchSpec struct {
	Name      string     `yaml:"name"`
	P4Runtime string     `yaml:"p4runtime"`
	Server    string     `yaml:"serverName"`
	DeviceID  *uint64    `yaml:"deviceId"`
	Address   string     `yaml:"address"`
	MAC       string     `yaml:"mac"`
	Prefixes  []string   `yaml:"prefixes"`
	Ports     []PortSpec `yaml:"ports"`
}

// PortSpec is a port that a switch lists.
type PortSpec struct {
	Number  int    `yaml:"number"`
	LeadsTo string `yaml:"leadsTo"`
}

// HostSpec is one host.
type HostSpec struct {
	Name string `yaml:"name"`
	IP   string `yaml:"ip"`
	MAC  string `yaml:"mac"`
	Port string `yaml:"port"` // in the form SWITCH:PORT

	Principal string             `yaml:"principal"`
	Access    *map[string]string `yaml:"access"` // read or write, by realm; nil: the file does not say
	Rate      *int               `yaml:"rate"`
}

// RealmSpec is a set of keys, by the prefixes of their names.
type RealmSpec struct {
	Name     string   `yaml:"name"`
	Prefixes []string `yaml:"prefixes"`
}

// ChainSpec is one chain.
type ChainSpec struct {
	ID          *int     `yaml:"id"`
	Name        string   `yaml:"name"`
	Address     string   `yaml:"address"`
	Members     []string `yaml:"members"`
	LeaseMillis *int     `yaml:"leaseMillis"`
	ShortLease  *int     `yaml:"shortLeaseMillis"`
	Patience    *int     `yaml:"patienceMillis"`
	Rejoin      *int     `yaml:"rejoinMillis"`
	Slots       int      `yaml:"slots"`
	// Length is set by programs that choose a chain's members themselves (Chain.Length).
	Length int `yaml:"-"`
}
