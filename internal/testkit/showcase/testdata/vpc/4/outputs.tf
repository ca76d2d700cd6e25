output "vpc_id" {
  value       = one(aws_vpc.this[*].id)
  description = "ID of the VPC."
}

output "vpc_cidr_block" {
  value       = one(aws_vpc.this[*].cidr_block)
  description = "IPv4 range of the VPC."
}

output "subnet_ids" {
  value       = { for name, s in aws_subnet.private : name => s.id }
  description = "IDs of the subnets by group and availability zone."
}

output "database_subnet_group" {
  value       = one(aws_db_subnet_group.this[*].name)
  description = "Name of the subnet group for databases."
}

output "flow_log_group_arn" {
  value       = one(aws_cloudwatch_log_group.flow_logs[*].arn)
  description = "ARN of the log group of flow logs, or null."
}

output "nat_public_ips" {
  value       = aws_eip.nat[*].public_ip
  description = "Public addresses of the NAT gateways."
}

output "internet_gateway_id" {
  value       = one(aws_internet_gateway.this[*].id)
  description = "ID of the internet gateway."
}

output "route_table_ids" {
  value       = { public = one(aws_route_table.public[*].id), private = one(aws_route_table.private[*].id) }
  description = "IDs of the route tables by type."
}

output "peering_token" {
  value       = random_id.suffix.hex
  sensitive   = true
  description = "Token that the transit account needs to accept the peering."
}

output "default_security_group_id" {
  value       = one(aws_default_security_group.this[*].id)
  description = "ID of the default security group, which has no rules."
}
