package idl

// The error codes of calls. Each kind of call has its own type.
type (
	TableCode     int32
	CounterCode   int32
	SwapCode      int32
	MeterCode     int32
	RegisterCode  int32
	ValueSetCode  int32
	LearnCode     int32
	PortCode      int32
	CRCCode       int32
	ToeplitzCode  int32
	LookupCode    int32
	MulticastCode int32
	MirroringCode int32
)

// The values of TableCode.
const (
	TableCodeTableFull TableCode = iota + 1
	TableCodeInvalidHandle
	TableCodeExpiredHandle
	TableCodeCountersDisabled
	TableCodeMetersDisabled
	TableCodeAgeingDisabled
	TableCodeInvalidTableName
	TableCodeInvalidActionName
	TableCodeWrongTableType
	TableCodeInvalidMbrHandle
	TableCodeMbrStillUsed
	TableCodeMbrAlreadyInGrp
	TableCodeMbrNotInGrp
	TableCodeInvalidGrpHandle
	TableCodeGrpStillUsed
	TableCodeEmptyGrp
	TableCodeDuplicateEntry
	TableCodeBadMatchKey
	TableCodeInvalidMeterOperation
	TableCodeDefaultActionIsConst
	TableCodeDefaultEntryIsConst
	TableCodeNoDefaultEntry
	TableCodeInvalidActionProfileName
	TableCodeNoActionProfileSelection
	TableCodeImmutableTableEntries
	TableCodeBadActionData
	TableCodeNoTableKey
	TableCodeError TableCode = 100
)

// The values of CounterCode.
const (
	CounterCodeInvalidCounterName CounterCode = iota + 1
	CounterCodeInvalidIndex
	CounterCodeError
)

// The values of SwapCode.
const (
	SwapCodeConfigSwapDisabled SwapCode = iota + 1
	SwapCodeOngoingSwap
	SwapCodeNoOngoingSwap
)

// The values of MeterCode.
const (
	MeterCodeInvalidMeterName MeterCode = iota + 1
	MeterCodeInvalidIndex
	MeterCodeBadRatesList
	MeterCodeInvalidInfoRateValue
	MeterCodeInvalidBurstSizeValue
	MeterCodeError
)

// The values of RegisterCode.
const (
	RegisterCodeInvalidRegisterName RegisterCode = iota + 1
	RegisterCodeInvalidIndex
	RegisterCodeError
)

// The values of ValueSetCode.
const (
	ValueSetCodeInvalidParseVsetName ValueSetCode = iota + 1
	ValueSetCodeError
)

// The values of LearnCode.
const (
	LearnCodeInvalidListID LearnCode = iota + 1
	LearnCodeInvalidListName
	LearnCodeError
)

// PortCodeError is the only value of PortCode.
const PortCodeError PortCode = 1

// The values of CRCCode.
const (
	CRCCodeInvalidCalculationName CRCCode = iota + 1
	CRCCodeWrongTypeCalculation
	CRCCodeInvalidConfig
)

// The values of ToeplitzCode.
const (
	ToeplitzCodeInvalidCalculationName ToeplitzCode = iota + 1
	ToeplitzCodeWrongTypeCalculation
	ToeplitzCodeInvalidKey
)

// The values of LookupCode.
const (
	LookupCodeInvalidResourceType LookupCode = iota
	LookupCodeInvalidResourceName
)

// The values of MulticastCode.
const (
	MulticastCodeTableFull MulticastCode = iota + 1
	MulticastCodeInvalidMgid
	MulticastCodeInvalidMgrpHandle
	MulticastCodeInvalidL1Handle
	MulticastCodeError
)

// MirroringCodeSessionNotFound is the only value of MirroringCode.
const MirroringCodeSessionNotFound MirroringCode = 1
