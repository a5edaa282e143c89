# SPDX-License-Identifier: Apache-2.0
"""``p4.tmp.p4config_pb2`` as scripts for BMv2 import it, which no package of PyPI has: it comes
with PI where BMv2 is built. ``make p4-suites`` puts it next to ``p4.v1``.
"""

from google.protobuf import descriptor_pb2, message_factory, symbol_database

_FIELD = descriptor_pb2.FieldDescriptorProto
_file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
_message = _file.message_type.add(name="P4DeviceConfig")
_message.field.add(name="reassign", number=1, type=_FIELD.TYPE_BOOL, label=_FIELD.LABEL_OPTIONAL)
_message.field.add(name="device_data", number=3, type=_FIELD.TYPE_BYTES, label=_FIELD.LABEL_OPTIONAL)

_pool = symbol_database.Default().pool
_pool.Add(_file)
_descriptor = _pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig")
if hasattr(message_factory, "GetMessageClass"):
    P4DeviceConfig = message_factory.GetMessageClass(_descriptor)
else:
    P4DeviceConfig = message_factory.MessageFactory(_pool).GetPrototype(_descriptor)
